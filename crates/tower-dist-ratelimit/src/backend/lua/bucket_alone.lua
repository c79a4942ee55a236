-- A token bucket that is decided alone, as nearly all are: what the parts of other scripts do, without the calls
-- between them. What is used is kept as `full_at.lua` says.
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local tonumber, match, format, call = tonumber, string.match, string.format, redis.call
local replies, n = {}, 0
local used_of, changed, to_write, is_changed = {}, {}, 0, {}
-- What is the same for all is there once: the key, or what is asked.
local one_key, one_ask = #KEYS == 1 and KEYS[1], #ARGV == 1 and ARGV[1]
local latest = now + $HORIZON
-- Those that are missing or of another type are false.
local texts = redis.call('MGET', unpack(KEYS))
for i = 1, max(#KEYS, #ARGV) do
  local key = one_key or KEYS[i]
  local used = used_of[key]
  if not used then
    used = 0
    local text = texts[one_key and 1 or i]
    if text then
      local at, part = tonumber(text), 0
      if not at then
        at, part = match(text, '^(%d+) (%d+)$')
        at, part = tonumber(at), tonumber(part)
      end
      -- Later than can be meant, or a part of more than one, is not ours.
      if at and at <= latest and part < $RATE then used = max(0, min((at - now) * $RATE + part, $MOST_USED)) end
    end
    used_of[key] = used
  end
  local text, kind = one_ask or ARGV[i], nil
  local cost = tonumber(text)
  local want = cost
  if not cost then
    kind, cost, want = match(text, '^([sx]?)(%-?%d+) (%d+)$')
    cost, want = tonumber(cost), tonumber(want)
  end
  local after = used
  if kind == 's' then
    after = used + cost * $TOKEN
    after = cost < 0 and max(0, after) or max(used, min(after, $MOST_USED))
  else
    local free = used < $BURST and floor(($BURST - used) / $TOKEN) or 0
    if kind == 'x' then
      -- So many requests of this cost in a row. What each is told follows from what was used before, and is worked out
      -- where they come from.
      after = used + min(want, floor(free / cost)) * cost * $TOKEN
      replies[n + 1] = used
      n = n + 1
    elseif cost > free then
      local wait = cost * $TOKEN <= $BURST and ceil((used + cost * $TOKEN - $BURST) / $RATE) or -1
      replies[n + 1], replies[n + 2], replies[n + 3], replies[n + 4] = -1 - free, ceil(used / $RATE), -1, wait
      n = n + 4
    elseif cost == 0 or want <= cost or free == cost then
      after = used + cost * $TOKEN
      replies[n + 1], replies[n + 2] = free - cost, ceil(after / $RATE)
      n = n + 2
    else
      local granted = min(want, free)
      after = used + granted * $TOKEN
      replies[n + 1], replies[n + 2], replies[n + 3], replies[n + 4] = -1 - (free - granted), ceil(after / $RATE), granted, 0
      n = n + 4
    end
  end
  if after ~= used then
    used_of[key] = after
    if not is_changed[key] then
      is_changed[key] = true
      to_write = to_write + 1
      changed[to_write] = key
    end
  end
end
for i = 1, to_write do
  local key = changed[i]
  local used = used_of[key]
  if used == 0 then
    call('DEL', key)
  else
    local at, part = now + floor(used / $RATE), used % $RATE
    local text = part == 0 and format('%d', at) or format('%d %d', at, part)
    call('SET', key, text, 'PX', format('%d', ceil(used / ($RATE * 1000)) + $SLACK))
  end
end
return replies
