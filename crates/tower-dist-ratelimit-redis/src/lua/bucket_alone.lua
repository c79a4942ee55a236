-- The script of a single policy with a token or leaky bucket and without dynamic quotas: the most frequent case. It
-- makes the same decisions as the script of several policies, but defines no functions, which saves time. `full_at.lua`
-- describes the stored value.
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local tonumber, match, format, call = tonumber, string.match, string.format, redis.call
local replies, n = {}, 0
-- If several requests all have the same key, it is sent once. Otherwise, if all asks (texts of the requests) are the
-- same, one ask is sent.
local one_key, one_ask = #KEYS == 1 and KEYS[1], #ARGV == 1 and ARGV[1]
local latest = now + $FURTHEST
-- `used` is the number of used units. `before` is this number according to the stored value, or -1 to force an update.
-- With several keys, tables hold these numbers by key, because a key can occur twice. With one key there is no table.
local used, before
local used_of, before_of = not one_key and {}, not one_key and {}
-- `MGET` returns false for missing values and for values of another type.
local texts = call('MGET', unpack(KEYS))
for i = 1, max(#KEYS, #ARGV) do
  local key = one_key or KEYS[i]
  if used_of then used = used_of[key] end
  if not used then
    used = 0
    local text, jumped = texts[one_key and 1 or i], false
    if text then
      local at, ahead, part = match(text, '^(%d+) (%d+) ?(%d*)$')
      at, ahead = tonumber(at), tonumber(ahead)
      -- A time after `latest` is invalid. `part` is the part of `at` below a microsecond, in units. If it was written
      -- with another rate, it can exceed one microsecond, and then counts as one.
      if at and at <= latest then
        jumped = at - now > ahead
        used = max(0, min(min(at - now, ahead) * $RATE + min(tonumber(part) or 0, $RATE), $MOST_USED))
      end
    end
    -- If the value was written at a time after now, the clock has jumped back. Then -1 forces an update, even if no
    -- token is taken.
    before = jumped and -1 or used
    if used_of then before_of[key] = before end
  end
  local text, kind = one_ask or ARGV[i], nil
  local cost = tonumber(text)
  local want = cost
  if not cost then
    kind, cost, want = match(text, '^([sx]?)(%-?%d+) (%d+)$')
    cost, want = tonumber(cost), tonumber(want)
  end
  if kind == 's' then
    local after = used + cost * $TOKEN
    used = cost < 0 and max(0, after) or max(used, min(after, $MOST_USED))
  else
    local free = used < $BURST and floor(($BURST - used) / $TOKEN) or 0
    if kind == 'x' then
      -- A run of `want` requests of this cost. The client computes each answer from the units used before the run.
      replies[n + 1] = used
      n = n + 1
      used = used + min(want, floor(free / cost)) * cost * $TOKEN
    elseif cost > free then
      local wait = cost * $TOKEN <= $BURST and ceil((used + cost * $TOKEN - $BURST) / $RATE) or -1
      replies[n + 1], replies[n + 2], replies[n + 3], replies[n + 4] = -1 - free, ceil(used / $RATE), -1, wait
      n = n + 4
    elseif cost == 0 or want <= cost or free == cost then
      used = used + cost * $TOKEN
      replies[n + 1], replies[n + 2] = free - cost, ceil(used / $RATE)
      n = n + 2
    else
      local granted = min(want, free)
      used = used + granted * $TOKEN
      replies[n + 1], replies[n + 2], replies[n + 3], replies[n + 4] = -1 - (free - granted), ceil(used / $RATE), granted, 0
      n = n + 4
    end
  end
  if used_of then used_of[key] = used end
end
for i = 1, #KEYS do
  local key = KEYS[i]
  if used_of then used, before = used_of[key], before_of[key] end
  if used ~= before then
    if used == 0 then
      call('DEL', key)
    else
      local ahead, part = floor(used / $RATE), used % $RATE
      local text = format(part == 0 and '%d %d' or '%d %d %d', now + ahead, ahead, part)
      call('SET', key, text, 'PX', format('%d', ceil(used / ($RATE * 1000)) + $SLACK))
    end
    if used_of then before_of[key] = used end
  end
end
return replies
