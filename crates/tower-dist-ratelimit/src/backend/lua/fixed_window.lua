  local LIMIT = $LIMIT

  -- The window that counts: that of now; or a later one, if the clock has jumped back.
  local function open(key)
    local ends, count = now + $WINDOW - (now + $PHASE) % $WINDOW, 0
    local text = get(key)
    if text then
      local at, n = match(text, '^(%d+) (%d+)$')
      at, n = time_of(at), tonumber(n)
      if at and at >= ends and n <= $MAX_COUNT then ends, count = at, n end
    end
    return { policy = false, touched = false, key = key, ends = ends, count = count, fresh = ends }
  end
