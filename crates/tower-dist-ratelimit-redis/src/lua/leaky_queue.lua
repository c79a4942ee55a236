  -- Returns the number of requests of one token that can still join a queue of `ahead` units, at most $MOST_USED.
  local function places(ahead)
    local room = $MAX_WAIT * RATE - ahead
    return BURST > 0 and room >= 0 and min(floor(room / TOKEN) + 1, $MOST_USED) or 0
  end

  -- Grants exactly the cost, because extra tokens would undo the spacing. An allowed request of a cost above zero waits
  -- for its turn.
  local function decide(state, cost)
    load(state)
    local used = state.used
    local delay = ceil(used / RATE)
    if cost == 0 then return 0, places(used), 0, delay end
    local payable = cost * TOKEN <= BURST
    if payable and delay <= $MAX_WAIT then
      local ahead = used + cost * TOKEN
      return cost, places(ahead), delay, ceil(ahead / RATE)
    end
    return -1, places(used), payable and delay - $MAX_WAIT or -1, delay
  end
