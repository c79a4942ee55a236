  local LIMIT = $LIMIT

  -- The present window. After the clock has jumped back it has what a later one had.
  local function open(key)
    local ends = now + $WINDOW - (now + $PHASE) % $WINDOW
    local state = { policy = false, touched = false, key = key, ends = ends, count = 0, fresh = ends }
    local text = get(key)
    if text then
      local at, n = match(text, '^(%d+) (%d+)$')
      at, n = time_of(at), tonumber(n)
      if at and at >= ends and n <= $MAX_COUNT then
        state.count = n
        if at > ends then touch(state) end
      end
    end
    return state
  end
