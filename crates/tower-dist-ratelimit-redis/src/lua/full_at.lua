  -- A token is TOKEN units, and RATE units drain in a microsecond. The value has two or three numbers:
  -- 1. The time at which all used units will have drained, in whole microseconds.
  -- 2. The time from the write until then.
  -- 3. If the exact time is later by a fraction of a microsecond: the numerator of this fraction over RATE.
  local RATE, TOKEN, BURST = $RATE, $TOKEN, $BURST

  local function open(key)
    local state = { policy = false, touched = false, key = key, used = 0 }
    local text = get(key)
    if text then
      local at, ahead, part = match(text, '^(%d+) (%d+) ?(%d*)$')
      at, ahead, part = time_of(at), tonumber(ahead), tonumber(part) or 0
      if at then
        -- A fraction that was written with another rate counts as at most one microsecond.
        state.used = max(0, min(min(at - now, ahead) * RATE + min(part, RATE), $MOST_USED))
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
    local text = format(part == 0 and '%d %d' or '%d %d %d', now + ahead, ahead, part)
    call('SET', state.key, text, 'PX', keep(used / RATE))
  end
