  -- state[0] to state[N - 1] are the counts of the last N sub-windows, the newest first. state[N] is the count of the
  -- sub-window before them. Normally the window covers the last LENGTH - state.passed microseconds of that sub-window.
  local LIMIT, N, LENGTH = $LIMIT, $COUNT, $LENGTH

  local function open(key)
    local number = floor(now / LENGTH)
    local state = { policy = false, touched = false, key = key, number = number, passed = now % LENGTH }
    for age = 0, N do state[age] = 0 end
    local text = get(key)
    if not text then return state end
    local counts, n = {}, -1
    for digits in string.gmatch(text, '%d+') do
      counts[n] = tonumber(digits)
      n = n + 1
      if n > 0 and counts[n - 1] > $MAX_COUNT then return state end
    end
    local newest = n == N + 1 and time_of(counts[-1])
    if not newest then return state end
    newest = floor(newest / LENGTH)
    -- If the clock has jumped back into the sub-window directly before the newest one, the newest one stays the newest.
    -- After a longer jump, all counts move back, so that the newest sub-window is the one after the present. So the key
    -- recovers.
    if newest > number + 1 then
      touch(state)
      newest = number + 1
    end
    if newest > number then
      state.number, state.passed = newest, now - newest * LENGTH
    end
    local older = state.number - newest
    for age = older, N do state[age] = counts[age - older] end
    return state
  end

  local function within(state)
    local sum = 0
    for age = 0, N - 1 do sum = sum + state[age] end
    return sum
  end

  -- Returns how many of the `count` tokens of a partly covered sub-window still count, rounded up. `passed` is the time
  -- since the newest sub-window began, in microseconds: negative if the clock has jumped back to before its beginning.
  local function share(count, passed)
    if $WHOLE or count == 0 or passed <= 0 then return count end
    local part, rest = muldiv(count, LENGTH - passed, LENGTH)
    return rest > 0 and part + 1 or part
  end

  -- Returns how much of the newest sub-window must have passed, in microseconds, so that at most `room` of the `count`
  -- tokens of a partly covered sub-window still count. Returns nil if that is the whole sub-window.
  local function passes(count, room)
    if count <= room then return 0 end
    if $WHOLE then return nil end
    local left = muldiv(room, LENGTH, count)
    return left > 0 and LENGTH - left or nil
  end

  -- Returns the shortest time after which at most `most` tokens count if no token is added.
  local function wait(state, most)
    local sum, waited, passed = within(state), 0, state.passed
    for age = N, 0, -1 do
      local until_then = sum <= most and passes(state[age], most - sum)
      if until_then then return waited + max(0, until_then - passed) end
      waited = waited + LENGTH - passed
      passed = 0
      if age > 0 then sum = sum - state[age - 1] end
    end
    return waited
  end

  local function reset(state)
    for age = 0, N do
      if state[age] > 0 then return (N + 1 - age) * LENGTH - state.passed end
    end
    return 0
  end

  local function decide(state, cost, want)
    local free = max(LIMIT - within(state) - share(state[N], state.passed), 0)
    local take = granted(free, cost, want)
    if take == 0 then return 0, free, 0, reset(state) end
    if take > 0 then
      return take, free - take, 0, (N + 1) * LENGTH - state.passed
    end
    return -1, free, cost <= LIMIT and wait(state, LIMIT - cost) or -1, reset(state)
  end

  local function take(state, tokens)
    state[0] = state[0] + tokens
  end

  -- A refund lowers the latest counts first.
  local function settle(state, delta)
    if delta > 0 then
      local more = min(delta, $MAX_COUNT - within(state) - state[N])
      if more <= 0 then return false end
      state[0] = state[0] + more
      return true
    end
    local differs = false
    for age = 0, N do
      local back = min(-delta, state[age])
      state[age] = state[age] - back
      delta = delta + back
      differs = differs or back > 0
    end
    return differs
  end

  local function save(state)
    local ttl = reset(state)
    if ttl == 0 then return call('DEL', state.key) end
    local counts = format('%d', state.number * LENGTH)
    for age = 0, N do counts = counts .. ' ' .. format('%d', state[age]) end
    call('SET', state.key, counts, 'PX', keep(ttl))
  end
