  -- The value has four numbers: the used units at the time of the write; the units of a token and the units that drain
  -- in a microsecond, both by the quota in force; and the time of the write.
  local RATE, TOKEN, BURST = $RATE, $TOKEN, $BURST

  local function open(key)
    local state = { policy = false, touched = false, key = key, units = 0, token = TOKEN, rate = RATE, written = now, used = 0 }
    local value = get(key, 32)
    if value then
      local units, token, rate, written = decode('<dddd', value)
      if time_of(written) and units <= $MOST_USED and token >= 1 and token <= $MOST_USED and rate >= 1 then
        state.units, state.token, state.rate, state.written = units, token, rate, min(written, now)
        -- If the value was written at a time after now, the clock has jumped back. The value then counts as written
        -- now. This `SET` keeps the key's time to live.
        if written > now then call('SET', key, encode('<dddd', units, token, rate, now), 'KEEPTTL') end
      end
    end
    return state
  end

  -- Returns the units that are used now, by the quota in force.
  local function left(state)
    if state.units == 0 then return 0 end
    return max(0, min(state.units - (now - state.written) * state.rate, $MOST_USED))
  end

  -- Sets `state.used` to the units that are used now, converted so that TOKEN units are one token.
  local function load(state)
    local units, token = left(state), state.token
    if token ~= TOKEN then
      local part, rest = muldiv(units % token, TOKEN, token)
      units = min(floor(units / token) * TOKEN + part + (rest > 0 and 1 or 0), $MOST_USED)
    end
    state.used = units
  end

  local function store(state)
    state.units, state.token, state.rate, state.written = state.used, TOKEN, RATE, now
  end

  -- Prepares a correction. A refund uses the quota in force instead of its own.
  local function hold(state, delta)
    if delta < 0 and left(state) > 0 then RATE, TOKEN = state.rate, state.token end
  end

  -- Puts the quota of a rejected request in force, unless its burst is 0, no unit is used, or the quota in force has
  -- the same rate. With the same rate, the stored value is valid under both quotas. Two quotas with the same rate can
  -- have units of different sizes, because the size of a unit depends on the burst.
  local function adopt(state)
    load(state)
    if state.used == 0 or BURST == 0 or state.token * RATE == state.rate * TOKEN then return false end
    store(state)
    return true
  end

  local function save(state)
    if state.units == 0 then return call('DEL', state.key) end
    local value = encode('<dddd', state.units, state.token, state.rate, state.written)
    call('SET', state.key, value, 'PX', keep(state.units / state.rate))
  end
