  local function take(state, tokens)
    state.used = state.used + tokens * TOKEN
    store(state)
  end

  local function settle(state, delta)
    hold(state, delta)
    load(state)
    local used = state.used
    local settled = delta < 0 and max(0, used + delta * TOKEN) or max(used, min(used + delta * TOKEN, $MOST_USED))
    if settled == used then return false end
    state.used = settled
    store(state)
    return true
  end
