  -- What is used is kept as the instant at which all of it has drained: microseconds, and a numerator over RATE where
  -- instants are between them. A token is TOKEN units, and RATE units drain in a microsecond.
  local RATE, TOKEN, BURST = $RATE, $TOKEN, $BURST

  local function open(key)
    local used = 0
    local text = get(key)
    if text then
      local at, part = match(text, '^(%d+) ?(%d*)$')
      at, part = time_of(at), tonumber(part) or 0
      -- A part of another rate, from before the quota changed, is at most one.
      if at then used = max(0, min((at - now) * RATE + min(part, RATE), $MOST_USED)) end
    end
    return { policy = false, touched = false, key = key, used = used }
  end

  local function load() end
  local function store() end

  local function save(state)
    local used = state.used
    if used == 0 then return call('DEL', state.key) end
    local at, part = now + floor(used / RATE), used % RATE
    local text = part == 0 and format('%d', at) or format('%d %d', at, part)
    call('SET', state.key, text, 'PX', keep(used / RATE))
  end
