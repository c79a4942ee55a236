  local LIMIT = $LIMIT

  -- The window that counts: that of a first request; or one that would begin now.
  local function open(key)
    local ends, count = now + $WINDOW, 0
    local text = get(key)
    if text then
      local at, n = match(text, '^(%d+) (%d+)$')
      at, n = time_of(at), tonumber(n)
      if at and at > now and n > 0 and n <= $MAX_COUNT then ends, count = at, n end
    end
    return { policy = false, touched = false, key = key, ends = ends, count = count, fresh = now + $WINDOW }
  end
