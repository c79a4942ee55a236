-- Stored and answered numbers are integers below 2^53, where doubles are exact. Most values are such doubles, 8 bytes
-- each: decoding them takes a tenth of the time of parsing text. Other numbers are formatted with '%d', which takes a
-- third of the time that Redis takes to format a number. Times are in microseconds by this server's clock.
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local format, match = string.format, string.match
local encode, decode = struct.pack, struct.unpack
local call, pcall = redis.call, redis.pcall
local changed, to_write = {}, 0

-- Returns the string at a key. Returns false if the key is missing or of another type, or if the string does not have
-- `size` bytes.
local function get(key, size)
  local value = pcall('GET', key)
  return type(value) == 'string' and #value == (size or #value) and value
end

-- Returns a time, which is a number or its text. Returns nil for a text that is no number, and false for a time that is
-- invalid: NaN, or too late.
local function time_of(value)
  local at = tonumber(value)
  return at and at <= now + $FURTHEST and at
end

local function touch(state)
  if not state.touched then
    state.touched = true
    to_write = to_write + 1
    changed[to_write] = state
  end
end

-- Returns the time to live, in milliseconds, of a state that counts used tokens for `micros` more microseconds, or for
-- $FURTHEST microseconds if that is less. Redis counts the time to live in whole milliseconds, and may count from a
-- time before the script began. The slack makes up for both.
local function keep(micros)
  return format('%d', ceil(min(micros, $FURTHEST) / 1000) + $SLACK)
end

-- Returns the number of tokens to take out of `free` tokens, or -1 for a rejection.
local function granted(free, cost, want)
  if cost > free then return -1 end
  if cost == 0 then return 0 end
  return min(max(want, cost), free)
end

-- Returns the quotient of a * b / c, rounded down, and the remainder, also if the product is above 2^53. This is a long
-- division. Its base is so small that no step exceeds 2^53. Base 2 suffices for any `b` and `c` up to 2^52.
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
    local shifted = rest * base
    local step = shifted % c + digits[i] * b
    quotient = quotient * base + floor(shifted / c) + floor(step / c)
    rest = step % c
  end
  return quotient, rest
end
