  local LIMIT = $LIMIT

  -- The window that counts: that of a first request; or one that would begin now. So does, after the clock has jumped
  -- back, one that would begin later.
  local function open(key)
    local fresh = now + $WINDOW
    local state = { policy = false, touched = false, key = key, ends = fresh, count = 0, fresh = fresh }
    local text = get(key)
    if text then
      local at, n = match(text, '^(%d+) (%d+)$')
      at, n = time_of(at), tonumber(n)
      if at and at > now and n > 0 and n <= $MAX_COUNT then
        state.ends, state.count = min(at, fresh), n
        if at > fresh then touch(state) end
      end
    end
    return state
  end
