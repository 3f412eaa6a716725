/** `sealane members` beside a broker. */
import t from 'tap'
import { RawMember, startTarget } from '../hostile/support/raw-member.ts'
import { eventually } from '../support/eventually.ts'
import { LoopbackBroker } from './loopback-broker.ts'
import { runCli, startCli } from './run-cli.ts'

const TIME = /\d{4}-\d\d-\d\dT[0-9:.]+Z/
const plain = (text: string): string => text.replaceAll(new RegExp(TIME, 'g'), 'TIME').replaceAll(/ +/g, ' ')

t.test('nobody has joined', async (t) => {
  const broker = await LoopbackBroker.start(t)
  for (const _ of [1, 2]) {
    t.same(await runCli(['members', '--state', broker.state]), { code: 0, stdout: '', stderr: 'none\n' })
  }
})

t.test('members of this release and of an earlier one', async (t) => {
  const { broker } = await startTarget(t)
  const ids = ['milano', 'oslo', 'paris']
  const members = await Promise.all(
    ids.map((id, i) => RawMember.join(t, broker, id, { podCidrs: [`10.${50 + i}.0.0/16`] })),
  )
  const [milano, , paris] = await Promise.all(members.map((one) => one.publish().open()))
  const problems = ['A', 'B', 'C', 'D'].map((code) => ({ code, severity: 'degraded', count: 2 }))
  const report = { versions: ['0.1.0', '0.2.0'], lanesUp: 1, lanes: 3, exports: 4, exportsFailed: 2, problems }
  const rest = { notImported: [], leftOut: 0, openConnections: undefined }
  await milano!.report({ ...rest, report })
  await paris!.report({ ...rest, report: { ...report, exportsFailed: 0, problems: [] } })
  const shown = async (...words: string[]) => {
    const { code, stdout, stderr } = await runCli(['members', '--state', broker.state, ...words])
    t.same([code, stderr], [0, ''])
    return stdout
  }
  const ours = (text: string): string[] =>
    plain(text)
      .split('\n')
      .filter((line) => /^(CLUSTER|milano|oslo|paris) /.test(line))
  const short = [
    'CLUSTER STATE VERSIONS LANES EXPORTS PROBLEMS LAST HEARD',
    'milano silent 0.1.0,0.2.0 1/3 4 (2 failed) A x2 (degraded), B x2 (degraded), C x2 (degraded), 1 more TIME',
    'oslo silent - - - - TIME',
    'paris silent 0.1.0,0.2.0 1/3 4 none TIME',
  ]
  t.same(ours(await shown()), short)
  t.match(await shown('-o', 'wide'), 'C x2 (degraded), D x2 (degraded) ')
  const { items } = JSON.parse(await shown('-o', 'json')) as { items: { id: string; reported?: object }[] }
  t.match(
    items.filter(({ id }) => ids.includes(id)),
    [
      { id: 'milano', state: 'silent', lastHeardMs: Number, reported: { lanes: { up: 1, of: 3 }, problems } },
      { id: 'oslo', reported: undefined },
      { id: 'paris', reported: { exports: { count: 4, failed: 0 } } },
    ],
  )
  t.match(await shown('-o', 'yaml'), /- id: milano\n/)

  const watching = startCli(['members', '--state', broker.state, '--watch', '-o', 'json'])
  await milano!.report({ ...rest, report: { ...report, lanesUp: 3 } })
  const changed = async () => (await shown('-o', 'json')).includes('"up": 3')
  await eventually(changed, { deadlineMs: 20_000, intervalMs: 500, say: 'at most one in five seconds' })
  watching.stop()
  const { stdout } = await watching.result
  const lines = stdout.trimEnd().split('\n')
  t.ok(lines.length >= 2, `${lines.length} looks`)
  for (const line of lines) t.ok(Array.isArray((JSON.parse(line) as { items: unknown }).items), 'each is one document')
})

t.test('a broker that has ended', async (t) => {
  const { broker } = await startTarget(t)
  const milano = await RawMember.join(t, broker, 'milano', { podCidrs: ['10.50.0.0/16'] })
  await milano.publish().open()
  const look = () => runCli(['members', '--state', broker.state])
  t.equal((await look()).code, 0, 'while it runs')
  await broker.stop()
  const { code, stdout, stderr } = await look()
  t.equal(code, 1)
  t.match(stdout, /^milano +silent /m, 'nobody is in contact with it')
  const since = TIME.exec(stdout)?.[0]
  t.match(
    stderr,
    `no broker runs with ${broker.state}: this is its last stored state; the last contact with a member was at ${since}`,
  )
  t.match(stderr, 'reason: BrokerSilent\n')
  const { code: listed, stderr: remark } = await runCli(['cluster', 'list', '--state', broker.state])
  t.equal(listed, 0, 'who belongs to the clusterset does not hang on a broker that runs')
  t.match(remark, 'no broker runs with ')
})
