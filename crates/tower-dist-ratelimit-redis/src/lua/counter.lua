  -- The state is a count and the end of its window.
  local function decide(state, cost, want)
    local count = state.count
    local free = max(LIMIT - count, 0)
    local left = state.ends - now
    local take = granted(free, cost, want)
    if take >= 0 then
      return take, free - take, 0, count + take == 0 and 0 or left
    end
    return -1, free, cost <= LIMIT and left or -1, count == 0 and 0 or left
  end

  local function take(state, tokens)
    state.count = state.count + tokens
  end

  local function settle(state, delta)
    local count = max(0, min(state.count + delta, $MAX_COUNT))
    local differs = count ~= state.count
    state.count = count
    -- A window that begins with its first request has not begun while its count is zero.
    if count == 0 then state.ends = state.fresh end
    return differs
  end

  local function save(state)
    if state.count == 0 then return call('DEL', state.key) end
    call('SET', state.key, encode('<dd', state.ends, state.count), 'PX', keep(state.ends - now))
  end
