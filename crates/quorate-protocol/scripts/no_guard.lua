local guards = 0
local function answer(word, number) return {word, number} end
local function refusal(taken) return taken and answer('refused', taken) end
