  -- The value is a list of the times of the used tokens, the oldest first. A list stores a time in about ten bytes.
  local LIMIT, WINDOW = $LIMIT, $WINDOW

  -- Moves all times back by `back` after the clock has jumped back.
  local function move(key, back)
    local times = call('LRANGE', key, 0, -1)
    for i = 1, #times do times[i] = format('%d', (time_of(times[i]) or now) - back) end
    call('DEL', key)
    for i = 1, #times, 1000 do call('RPUSH', key, unpack(times, i, min(i + 999, #times))) end
    call('PEXPIRE', key, keep(WINDOW))
  end

  -- The state has these fields, among others. stored: length of the list; len: the length without refunded tokens;
  -- left: number of tokens at the start of the list that have left the window; last: time of the latest token; add:
  -- number of tokens to push; replace: whether to delete the stored list. If a time that this function reads is
  -- invalid, the list counts as empty and `replace` is set.
  local function open(key)
    local state = { policy = false, touched = false, key = key, stored = 0, len = 0, left = 0, add = 0 }
    local function at(index)
      return time_of(call('LINDEX', key, index))
    end
    local len = pcall('LLEN', key)
    if type(len) ~= 'number' then
      state.replace = true
      return state
    end
    if len == 0 then return state end
    local first, last = at(0), at(-1)
    if first and last and last > now then
      move(key, last - now)
      first, last = at(0), now
    end
    local low, high = 0, len
    if first and first + WINDOW > now then high = 0 end
    while first and last and low < high do
      local middle = floor((low + high) / 2)
      local time = at(middle)
      if not time then first = nil
      elseif time + WINDOW <= now then low = middle + 1
      else high = middle end
    end
    if not first or not last then
      state.replace = true
      return state
    end
    state.stored, state.len, state.left, state.last = len, len, low, last
    return state
  end

  -- Returns the time to store for new tokens: now, or the time of the latest token if that is later.
  local function latest(state)
    return state.last and max(state.last, now) or now
  end

  -- Returns the time until the token with this index leaves the window. New tokens follow the stored ones.
  local function until_gone(state, index)
    local at = index < state.len and time_of(call('LINDEX', state.key, index)) or latest(state)
    return at + WINDOW - now
  end

  local function used(state)
    return state.len - state.left + state.add
  end

  local function reset(state)
    if used(state) == 0 then return 0 end
    return until_gone(state, state.len + state.add - 1)
  end

  local function decide(state, cost, want)
    local free = max(LIMIT - used(state), 0)
    local take = granted(free, cost, want)
    if take == 0 then return 0, free, 0, reset(state) end
    if take > 0 then return take, free - take, 0, latest(state) + WINDOW - now end
    local wait = -1
    if cost <= LIMIT then wait = until_gone(state, state.len + state.add - (LIMIT - cost) - 1) end
    return -1, free, wait, reset(state)
  end

  local function take(state, tokens)
    state.add = state.add + tokens
  end

  -- A refund removes the latest tokens.
  local function settle(state, delta)
    if delta > 0 then
      local more = min(delta, $MAX_LOG - used(state))
      if more <= 0 then return false end
      state.add = state.add + more
      return true
    end
    local back = min(-delta, used(state))
    local pushed = min(back, state.add)
    state.add = state.add - pushed
    if back > pushed then
      state.len = state.len - (back - pushed)
      state.last = state.len > 0 and time_of(call('LINDEX', state.key, state.len - 1)) or nil
    end
    return back > 0
  end

  local function save(state)
    local key, ttl = state.key, reset(state)
    if ttl == 0 or state.replace or state.len == state.left then
      call('DEL', key)
      if ttl == 0 then return end
    elseif state.left > 0 or state.len < state.stored then
      call('LTRIM', key, state.left, state.len - 1)
    end
    local at = latest(state)
    while state.add > 0 do
      local some = {}
      for i = 1, min(state.add, 1000) do some[i] = at end
      call('RPUSH', key, unpack(some))
      state.add = state.add - #some
    end
    call('PEXPIRE', key, keep(ttl))
  end
