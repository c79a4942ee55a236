  local function decide(state, cost, want)
    load(state)
    local used = state.used
    local free = used < BURST and floor((BURST - used) / TOKEN) or 0
    local take = granted(free, cost, want)
    if take >= 0 then
      return take, free - take, 0, ceil((used + take * TOKEN) / RATE)
    end
    local after = used + cost * TOKEN - BURST
    return -1, free, cost * TOKEN <= BURST and ceil(after / RATE) or -1, ceil(used / RATE)
  end
