  -- A token is TOKEN units, and RATE units drain in a microsecond. The value has three numbers:
  -- 1. The time at which all used units will have drained, in whole microseconds.
  -- 2. The time from the write until then.
  -- 3. The fraction of a microsecond by which the exact time is later: its numerator over RATE.
  local RATE, TOKEN, BURST = $RATE, $TOKEN, $BURST

  local function open(key)
    local state = { policy = false, touched = false, key = key, used = 0 }
    local value = get(key, 24)
    if value then
      local at, ahead, part = decode('<ddd', value)
      if time_of(at) then
        -- A fraction that was written with another rate counts as at most one microsecond.
        state.used = max(0, min(min(at - now, ahead) * RATE + min(RATE, part), $MOST_USED))
        -- If the value was written at a time after now, the clock has jumped back.
        if at - now > ahead then touch(state) end
      end
    end
    return state
  end

  local function load() end
  local function hold() end
  local function store() end

  local function save(state)
    local used = state.used
    if used == 0 then return call('DEL', state.key) end
    local ahead, part = floor(used / RATE), used % RATE
    call('SET', state.key, encode('<ddd', now + ahead, ahead, part), 'PX', keep(used / RATE))
  end
