/** `sealane access default`: what counts for services without an AccessPolicy, shown and set at a running broker. */
import t from 'tap'
import { LoopbackBroker } from './loopback-broker.ts'
import { runCli } from './run-cli.ts'

t.test('it is shown, set, and set again', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const rows: readonly [words: string[], code: number, stdout: RegExp, stderr?: RegExp][] = [
    [[], 0, /^allow: all members may call services without an AccessPolicy\nnobody has set it\n$/],
    [['deny'], 2, /^$/, /--yes/],
    [['deny', '--yes'], 0, /^deny: no member may call/],
    [['deny', '--yes'], 0, /^the default is deny already: nothing was changed\n$/],
    [[], 0, /^deny: no member may call services without an AccessPolicy\n$/],
    [['-o', 'json'], 0, /"accessDefault": "deny"/],
    [['allow'], 0, /^allow: all members may call/],
    [['some'], 2, /^$/, /"some": expected allow or deny/],
  ]
  for (const [words, code, stdout, stderr = /^$/] of rows) {
    const result = await runCli(['access', 'default', ...words, '--state', broker.state])
    t.equal(result.code, code, words.join(' '))
    t.match(result.stdout, stdout, words.join(' '))
    t.match(result.stderr, stderr, words.join(' '))
  }
})
