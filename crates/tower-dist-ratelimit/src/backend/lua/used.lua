  -- What was used when it was last written, of tokens of so many units, and when that was: it means the same by any
  -- quota. Since then it has drained at the rate that is asked by now.
  local RATE, TOKEN, BURST = $RATE, $TOKEN, $BURST

  local function open(key)
    local state = { policy = false, touched = false, key = key, units = 0, token = TOKEN, written = now, used = 0 }
    local text = get(key)
    if text then
      local units, token, written = match(text, '^(%d+) (%d+) (%d+)$')
      units, token, written = tonumber(units), tonumber(token), time_of(written)
      if written and units <= $MOST_USED and token > 0 and token <= $MOST_USED then
        state.units, state.token, state.written = units, token, min(written, now)
        -- The clock has jumped back. The key ends when it would have, or later.
        if written > now then call('SET', key, format('%d %d %d', units, token, now), 'KEEPTTL') end
      end
    end
    return state
  end

  -- As it is by the present quota.
  local function load(state)
    local units, token = state.units, state.token
    if token ~= TOKEN then
      local part, rest = muldiv(units % token, TOKEN, token)
      units = min(floor(units / token) * TOKEN + part + (rest > 0 and 1 or 0), $MOST_USED)
    end
    if units > 0 then units = max(0, min(units - (now - state.written) * RATE, $MOST_USED)) end
    state.used = units
  end

  local function store(state)
    state.units, state.token, state.written, state.rate = state.used, TOKEN, now, RATE
  end

  local function save(state)
    if state.units == 0 then return call('DEL', state.key) end
    local text = format('%d %d %d', state.units, state.token, state.written)
    -- By the slower of its own rate and the policy's.
    call('SET', state.key, text, 'PX', keep(max(state.units / state.rate, state.units / state.token * $TOKEN / $RATE)))
  end
