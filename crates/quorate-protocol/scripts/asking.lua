local function run(KEYS, ARGV)
