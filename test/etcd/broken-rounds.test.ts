/**
 * The rounds run on brokers that were broken on purpose, and the checker reports the records that were lost and the
 * values that were given out twice.
 */
import { join } from 'node:path'
import t from 'tap'
import { inPrivateNetns } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import type { Rule } from './rounds/checker/violations.ts'
import { runRounds } from './rounds/run-rounds.ts'

const ROUNDS = 4
const SEED = 1

/** The rules that show a safety fault. Each broken broker must violate at least one of them. */
const SAFETY: ReadonlySet<Rule> = new Set([
  ...(['record', 'member', 'token', 'index', 'block', 'service address', 'revision', 'shown', 'end state'] as const),
])

const all = inPrivateNetns(t, import.meta.url, () => {
  for (const name of ['forgetful', 'blind']) {
    t.test(`${name} brokers are found out`, { timeout: 90_000 }, async (t) => {
      const said: string[] = []
      const say = (text: string): void => void said.push(text)
      const preload = join(import.meta.dirname, `rounds/arena/broken/${name}.ts`)
      const init = {
        rounds: ROUNDS,
        seed: SEED,
        folder: temporaryFolder(t),
        preload,
        untilBroken: true,
        recoverMs: 5000,
      }
      const { violations } = await runRounds({ ...init, say })
      const rules = new Set(violations.map(({ rule }) => rule))
      t.ok(
        [...rules].some((rule) => SAFETY.has(rule)),
        said.join('\n'),
      )
      t.comment([...rules].join(', '), violations.find(({ rule }) => SAFETY.has(rule))?.text)
    })
  }
})
// These rounds take longer than the default timeout of a test file.
t.setTimeout(170_000)
await all
