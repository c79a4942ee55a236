-- Executes one request or correction after the other. Each of them has a key and an ask (its text) per policy. The ask
-- '-' means that the policy does not apply. Later requests see the changes by earlier requests and corrections.
local replies, n, states = {}, 0, {}
-- If there is only one key per policy, all requests have these keys. If there is only one ask, it applies to all
-- requests and policies.
local one_row, one_ask = #KEYS == POLICIES, #ARGV == 1 and ARGV[1]
for first = 1, max(#KEYS, #ARGV), POLICIES do
  local allowed = true
  for p = 1, POLICIES do
    local key, text = KEYS[one_row and p or first + p - 1], one_ask or ARGV[first + p - 1]
    asks[p].state = false
    if text ~= '-' then
      local policy = policies[p]
      local state = states[key]
      if not state then
        state = policy.open(key)
        state.policy = policy
        states[key] = state
      end
      local cost = tonumber(text)
      local want, quota = cost, nil
      local kind = ''
      if not cost then
        kind, cost, want, quota = match(text, '^(%a?)(%-?%d+) (%d+) ?(.*)$')
        cost, want = tonumber(cost), tonumber(want)
      end
      if policy.quota then policy.quota(quota) end
      if kind == 's' then
        if policy.settle(state, cost) then touch(state) end
        allowed = nil
      else
        local ask = asks[p]
        ask.state, ask.cost = state, cost
        ask.granted, ask.remaining, ask.wait, ask.reset = policy.decide(state, cost, want)
        if ask.granted < 0 then allowed = false end
      end
    end
  end
  if allowed ~= nil then
    for p = 1, POLICIES do
      local policy, ask = policies[p], asks[p]
      if ask.state then
        if allowed then
          if ask.granted > 0 then
            policy.take(ask.state, ask.granted)
            touch(ask.state)
          end
        else
          if ask.granted > 0 then
            -- Another policy rejects the request, so this policy takes no token: answer with the tokens that remain.
            ask.granted, ask.remaining, ask.wait, ask.reset = policy.decide(ask.state, 0, 0)
          end
          if ask.cost > 0 and policy.adopt and policy.adopt(ask.state) then touch(ask.state) end
        end
        if ask.granted == ask.cost and ask.wait == 0 then
          replies[n + 1], replies[n + 2] = ask.remaining, ask.reset
          n = n + 2
        else
          replies[n + 1], replies[n + 2], replies[n + 3], replies[n + 4] = -1 - ask.remaining, ask.reset, ask.granted, ask.wait
          n = n + 4
        end
      end
    end
  end
end
for i = 1, to_write do changed[i].policy.save(changed[i]) end
return replies
