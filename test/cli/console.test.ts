/** `sealane console`: from facts to a page that answers, and wrong usage. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { readPageFiles } from '../../console/server/server.ts'
import { bundleSource } from '../../cli/status/console/console-source.ts'
import { planState } from '../../console/state/state.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { factSet, healthyObjects } from '../support/objects/member-facts.ts'
import { runCli } from './run-cli.ts'

t.test('wrong usage', async (t) => {
  const folder = temporaryFolder(t)
  const short = join(folder, 'token')
  writeFileSync(short, 'short\n')
  const rows: readonly [words: string[], code: number, said: RegExp][] = [
    [['--listen', '9480'], 2, /--listen "9480": expected host:port/],
    [['--tls-cert', 'a.pem'], 2, /--tls-cert and --tls-key: expected both/],
    [['--token-file', short], 1, /expected one word of at least 16 characters/],
    [['--token-file', join(folder, 'none')], 1, /--token-file .*: ENOENT/],
    [['--bundle', 'a', '--context', 'b'], 2, /cannot be used with/],
    [['--interval', '10ms'], 2, /expected 1s to 1h/],
  ]
  for (const [words, code, said] of rows) {
    const result = await runCli(['console', '--no-browser', ...words])
    t.equal(result.code, code, words.join(' '))
    t.match(result.stderr, said)
  }
})

t.test('a file of facts', async (t) => {
  const { facts, everyMs } = bundleSource(factSet(healthyObjects()), '--bundle f')
  const { about, services, denied } = planState(await facts(new AbortController().signal))
  t.same([about.live, about.health, everyMs], [false, 'healthy', undefined])
  t.match(services.note, /has no rules of policies/)
  t.match(denied.note, /has no refused packets/)
})

t.test('the files of the page', async (t) => {
  const folder = temporaryFolder(t)
  t.throws(() => readPageFiles([folder]), /the page of the console is not built/)
  mkdirSync(join(folder, 'assets'))
  for (const name of ['index.html', 'assets/page.js', 'assets/page.js.map']) writeFileSync(join(folder, name), name)
  t.same([...readPageFiles([folder]).keys()].sort(), ['/', '/assets/page.js'])
})
