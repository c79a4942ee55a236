-- The script of a single policy with a token or leaky bucket and without dynamic quotas: the most frequent case. It
-- makes the same decisions as the script of several policies, but defines no functions, and on the path of an allowed
-- request calls none for arithmetic, which saves time. `full_at.lua` describes the stored value.
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local tonumber, match, format, call = tonumber, string.match, string.format, redis.call
local encode, decode = struct.pack, struct.unpack
local replies, n = {}, 0
-- If several requests all have the same key, it is sent once. Otherwise, if all asks (texts of the requests) are the
-- same, one ask is sent.
local one_key, one_ask, rows = #KEYS == 1 and KEYS[1], #ARGV == 1 and ARGV[1], max(#KEYS, #ARGV)
local one_cost = one_ask and tonumber(one_ask)
local latest = now + $FURTHEST
-- `used` is the number of used units. `before` is this number according to the stored value, or -1 to force an update.
-- With several keys, `used_of` holds `used` by key, because a key can occur twice.
local used, before
local used_of = not one_key and {}
-- The last time to live, in milliseconds, and its text. Keys often have the same time to live.
local ttl, ttl_text
-- `MGET` returns false for missing values and for values of another type.
local values = call('MGET', unpack(KEYS))
for i = 1, rows do
  local key = one_key or KEYS[i]
  if used_of then
    used = used_of[key]
    before = used
  end
  if not used then
    used = 0
    local value, jumped = values[one_key and 1 or i], false
    if value and #value == 24 then
      local at, ahead, part = decode('<ddd', value)
      -- A time after `latest` is invalid. `part` is the part of `at` below a microsecond, in units. If it was written
      -- with another rate, it can exceed one microsecond, and then counts as one.
      if at <= latest then
        jumped = at - now > ahead
        used = (jumped and ahead or at - now) * $RATE + (part < $RATE and part or $RATE)
        if used > $MOST_USED then used = $MOST_USED elseif used < 0 then used = 0 end
      end
    end
    -- If the value was written at a time after now, the clock has jumped back. Then -1 forces an update, even if no
    -- token is taken.
    before = jumped and -1 or used
  end
  local cost, kind = one_cost or tonumber(ARGV[i]), nil
  local want = cost
  if not cost then
    kind, cost, want = match(one_ask or ARGV[i], '^([sx]?)(%-?%d+) (%d+)$')
    cost, want = tonumber(cost), tonumber(want)
  end
  if kind == 's' then
    local after = used + cost * $TOKEN
    used = cost < 0 and max(0, after) or max(used, min(after, $MOST_USED))
  else
    local room = $BURST - used
    local free = room > 0 and (room - room % $TOKEN) / $TOKEN or 0
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
      local part = used % $RATE
      replies[n + 1], replies[n + 2] = free - cost, (used - part) / $RATE + (part > 0 and 1 or 0)
      n = n + 2
    else
      local granted = min(want, free)
      used = used + granted * $TOKEN
      replies[n + 1], replies[n + 2], replies[n + 3], replies[n + 4] = -1 - (free - granted), ceil(used / $RATE), granted, 0
      n = n + 4
    end
  end
  if used_of then used_of[key] = used end
  -- A single key is written once, after its last request.
  if used ~= before and (used_of or i == rows) then
    if used == 0 then
      call('DEL', key)
    else
      local part = used % $RATE
      local ahead = (used - part) / $RATE
      local millis = (ahead - ahead % 1000) / 1000 + 1 + $SLACK
      if millis ~= ttl then ttl, ttl_text = millis, format('%d', millis) end
      call('SET', key, encode('<ddd', now + ahead, ahead, part), 'PX', ttl_text)
    end
  end
end
return replies
