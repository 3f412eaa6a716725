/** `sealane broker relay`: relays are added, listed and removed at a running broker, and at its state without one. */
import t, { type Test } from 'tap'
import { LoopbackBroker } from './loopback-broker.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { runCli, spawnServing } from './run-cli.ts'

type Row = readonly [words: readonly string[], code: number, stdout: RegExp, stderr?: RegExp]

async function runAll(t: Test, state: string, rows: readonly Row[]): Promise<void> {
  for (const [words, code, stdout, stderr = /^$/] of rows) {
    const result = await runCli(['broker', 'relay', ...words, '--state', state])
    t.equal(result.code, code, `${words.join(' ')}: ${result.stderr}`)
    t.match(result.stdout, stdout, words.join(' '))
    t.match(result.stderr, stderr, words.join(' '))
  }
}

t.test('each command, and each a second time', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const [one, two] = ['wss://one.example/', 'wss://two.example:8443/relay']
  await runAll(t, broker.state, [
    [['list', '-o', 'json'], 0, /"items": \[\]/],
    [['add', one], 0, /^relay one\.example added\n$/],
    [['add', one], 0, /^relay one\.example was already added: nothing was changed\n$/],
    [['add', `${one}#${'a'.repeat(64)}`], 1, /^$/, /expected another name than that of "wss:\/\/one\.example\/"/],
    [['add', two], 0, /^relay two\.example:8443 added\n$/],
    [
      ['list'],
      0,
      /^RELAY +FROM +ADDED +ADDRESS\none\.example +added +20[^\n]+Z +wss:\/\/one\.example\/\ntwo\.example:8443 +added/,
    ],
    [['add', 'wss://three.example/'], 0, /added/],
    [['add', 'wss://four.example/'], 0, /added/],
    [['add', 'wss://five.example/'], 1, /^$/, /expected at most 4 relays: remove one first/],
    [['add', 'https://five.example/'], 1, /^$/, /expected wss:\/\/host/],
    [['remove', 'two.example:8443'], 0, /^relay two\.example:8443 removed\n$/],
    [['remove', 'two.example:8443'], 0, /^no such relay was added: two\.example:8443: nothing was changed\n$/],
    [['remove', 'wss://four.example/'], 0, /^relay four\.example removed\n$/],
    [['remove', 'http://four.example/'], 1, /^$/, /expected host\[:port\]/],
  ])
  const pin = 'b'.repeat(64)
  await runAll(t, broker.state, [
    [['add', `wss://a.example/#${pin}`], 0, /added/],
    [['add', `wss://b.example/#${pin}`], 0, /added/],
    [['list'], 0, /a\.example +added; same key as b\.example +20[^]*b\.example +added; same key as a\.example +20/],
    [['list', '-o', 'json'], 0, /"sameKeyAs": \[\n *"b\.example"\n *\]/],
    [['remove', 'a.example'], 0, /removed/],
    [['list'], 0, /b\.example +added +20/],
    [['remove', 'b.example'], 0, /removed/],
  ])
  await broker.stop()
  await runAll(t, broker.state, [
    [['remove', 'three.example'], 0, /removed/],
    [['list', '-o', 'json'], 0, /"name": "one\.example"/],
  ])
  await broker.start()
  await runAll(t, broker.state, [[['list', '-o', 'json'], 0, /"address": "wss:\/\/one\.example\/"/]])
})

t.test('flags that state two relays of one host: the broker says so, and serves as before', async (t) => {
  const [one, other] = [`wss://one.example/#${'a'.repeat(64)}`, 'wss://ONE.example:443/other']
  const state = t.testdir()
  const at = `127.0.0.1:${await freePort()}`
  const listens = ['--listen', at, '--advertise', at, '--status-listen', '127.0.0.1:0']
  const flags = ['wss://two.example/', one, other].flatMap((relay) => ['--relay', relay])
  const { said } = spawnServing(t, ['broker', 'serve', '--state', state, ...listens, ...flags])
  const list = async (): Promise<boolean> => {
    const { code, stdout } = await runCli(['broker', 'relay', 'list', '--state', state, '-o', 'json'])
    return code === 0 && [one, other].every((relay) => stdout.includes(JSON.stringify(relay)))
  }
  await eventually(list, { deadlineMs: 60_000, say: 'it serves, and states both' })
  t.match(said(), /two relays have one host and port/)
  t.match(said(), /InvalidValue/)
})
