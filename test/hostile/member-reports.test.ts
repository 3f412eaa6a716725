/** False status reports of a member, as the operator of the broker sees them. */
import t from 'tap'
import type { MemberReport, MemberStatus } from '../../protocol/gen/broker.ts'
import { runCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { attack } from './support/attack.ts'
import { RawMember, startTarget } from './support/raw-member.ts'

t.setTimeout(120_000)

const REPORT: MemberReport = { versions: ['0.1.0'], lanesUp: 2, lanes: 2, exports: 1, exportsFailed: 0, problems: [] }

function status(change: Partial<MemberReport> = {}): MemberStatus {
  return { notImported: [], leftOut: 0, openConnections: undefined, report: { ...REPORT, ...change } }
}

await attack('member-report-absurd', async (t) => {
  const { broker } = await startTarget(t)
  const liar = await RawMember.join(t, broker, 'mallory', { podCidrs: ['10.42.0.0/16'] })
  const milano = await RawMember.join(t, broker, 'milano', { podCidrs: ['10.50.0.0/16'] })
  const rows = async (): Promise<string[]> => {
    const { code, stdout, stderr } = await runCli(['members', '--state', broker.state])
    t.equal(code, 0, stderr)
    const lines = stdout.replaceAll(/ +/g, ' ').split('\n')
    return lines.filter((line) => /^(mallory|milano) /.test(line)).map((line) => line.replace(/ \S+$/, ''))
  }
  const [lying, honest] = [await liar.publish().open(), await milano.publish().open()]
  t.equal(await honest.report(status()), 'ok')
  const problem = { code: 'MoonTooFull', severity: 'tide', count: 3 }
  t.equal(await lying.report(status({ lanesUp: 1, problems: [problem] })), 'ok')
  const seen = ['mallory silent 0.1.0 1/2 1 MoonTooFull x3 (degraded)', 'milano silent 0.1.0 2/2 1 none']
  await eventually(async () => JSON.stringify(await rows()) === JSON.stringify(seen), { say: (await rows()).join() })

  const refused: [field: string, change: Partial<MemberReport>][] = [
    ['versions[0]', { versions: ['\u001b[2J'] }],
    ['problems[0].code', { problems: [{ ...problem, code: 'Call me\nnow' }] }],
    ['problems[1].code', { problems: [problem, problem] }],
    ['problems[0].count', { problems: [{ ...problem, count: 2 ** 32 - 1 }] }],
    ['lanes.up', { lanesUp: 3 }],
    ['exports.failed', { exportsFailed: 2 }],
  ]
  for (const [field, change] of refused) {
    const said = await lying.report(status(change))
    t.ok(said.startsWith(`status.report.${field}: `), `${field}: ${said}`)
    t.same(await rows(), seen, `${field}: what was told before stays`)
  }
  const thousand = Array.from({ length: 1000 }, (_, i) => ({ ...problem, code: `C${i}` }))
  t.not(await lying.report(status({ problems: thousand })).catch(String), 'ok', 'a thousand problems')
  const after = await rows()
  t.same(after[1], seen[1], 'and the other is as before')
  t.match(after[0], / MoonTooFull x3 /)
})
