-- All numbers are whole and below 2^53, where doubles are exact; they are written by '%d', which takes a third of the
-- time that Redis takes for a number. Times are in microseconds by this server's clock.
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local format, match = string.format, string.match
local call, pcall = redis.call, redis.pcall
local changed, to_write = {}, 0

-- The text at a key; nothing if there is none or the key is of another type.
local function get(key)
  local text = pcall('GET', key)
  return type(text) == 'string' and text
end

-- A time that can be meant.
local function time_of(text)
  local at = tonumber(text)
  return at and at <= now + $FURTHEST and at
end

local function touch(state)
  if not state.touched then
    state.touched = true
    to_write = to_write + 1
    changed[to_write] = state
  end
end

-- Until when a state that is used for so long has to be kept, in milliseconds. It is never without an end, nor one that
-- Redis cannot count. Expiry is counted from before the script began, in whole milliseconds: hence the slack.
local function keep(micros)
  return format('%d', ceil(min(micros, $FURTHEST) / 1000) + $SLACK)
end

-- What to take out of so many free tokens.
local function granted(free, cost, want)
  if cost > free then return -1 end
  if cost == 0 then return 0 end
  return min(max(want, cost), free)
end

-- a * b / c, rounded down, and what remains; also where the product is above 2^53. Long division in the largest base at
-- which no step is.
local function muldiv(a, b, c)
  if a * b <= $MOST then return floor(a * b / c), a * b % c end
  local base = 2
  while base * 2 * (b + c) <= $MOST do base = base * 2 end
  local digits, n = {}, 0
  while a > 0 do
    n = n + 1
    digits[n] = a % base
    a = floor(a / base)
  end
  local quotient, rest = 0, 0
  for i = n, 1, -1 do
    local step = rest * base + digits[i] * b
    quotient = quotient * base + floor(step / c)
    rest = step % c
  end
  return quotient, rest
end
