/** Rules that drop packets come before what they guard, go after it, and are put back. */
import t from 'tap'
import { applyGuard } from '../../../kernel/apply/apply-guard.ts'
import { NO_ROUTING, applyRouting } from '../../../kernel/apply/apply-routing.ts'
import { Round } from '../../../kernel/apply/round.ts'
import { Drift } from '../../../kernel/drift.ts'
import { KernelError } from '../../../kernel/errors.ts'
import { FakeRouteTable } from '../../../kernel/fake/fake-route-table.ts'
import type { Rule } from '../../../kernel/route/route-table.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'

const { signal } = new AbortController()
const closed = (inputDevice: string, family: 4 | 6 = 4): Rule => ({
  ...(family === 6 ? { family } : {}),
  priority: 71,
  table: 0,
  action: 'blackhole',
  inputDevice,
  withoutMark: 0x2000,
})
const text = (device: string, ip = 'ip', verb = 'add'): string =>
  `${ip} rule ${verb} priority 71 fwmark 0/0x2000 iif ${device} blackhole protocol 173`
const LANES = { guards: (device: string): boolean => device !== 'sealane-vx' }

class Stage {
  readonly logger = new CapturingLogger()
  readonly table = new FakeRouteTable()
  readonly repairs: string[] = []
  readonly drift = new Drift({
    clock: new FakeClock(),
    logger: this.logger,
    repairs: { inc: ({ what, reason } = {}) => void this.repairs.push(`${what} ${reason}`) },
  })

  async apply(
    rules: readonly Rule[],
  ): Promise<{ complete: boolean; done: unknown[]; leave: () => Promise<unknown[]> }> {
    const round = new Round({ logger: this.logger, drift: this.drift })
    const since = (before: number): unknown[] =>
      this.logger.lines
        .slice(before)
        .filter(({ message }) => message === 'changed')
        .map(({ fields }) => fields['text'])
    const before = this.logger.lines.length
    const { complete, removeOthers } = await applyGuard(this.table, rules, LANES, round, signal)
    const leave = async (): Promise<unknown[]> => {
      const start = this.logger.lines.length
      await removeOthers()
      return since(start)
    }
    return { complete, done: since(before), leave }
  }
}

t.test('what is missing is added at once, and what is left over goes when the caller says so', async (t) => {
  const stage = new Stage()
  await stage.table.addRule(closed('sealane-vx'))
  await stage.table.addRule({ priority: 74, table: 7311, exceptMark: 0x1073 })
  const first = await stage.apply([closed('sealane0'), closed('sealane0', 6)])
  t.strictSame([first.complete, first.done], [true, [text('sealane0'), text('sealane0', 'ip -6')]])
  t.strictSame(await first.leave(), [])
  const second = await stage.apply([closed('sealane1')])
  t.strictSame(second.done, [text('sealane1')])
  t.equal((await stage.table.rules()).length, 5, 'the old device is still guarded')
  t.strictSame(await second.leave(), [text('sealane0', 'ip', 'del'), text('sealane0', 'ip -6', 'del')])
  t.match(stage.table.toString(), text('sealane-vx'), 'the rule of another part stays')
  t.strictSame(stage.repairs, [])
})

t.test('other routing of the same part leaves them alone', async (t) => {
  const stage = new Stage()
  await stage.apply([closed('sealane0')])
  const round = new Round({ logger: stage.logger })
  await applyRouting(stage.table, NO_ROUTING, { tables: new Set([7311, 7313]) }, round, signal)
  t.match(stage.table.toString(), text('sealane0'))
})

t.test('a rule that another program removed or added is counted', async (t) => {
  const stage = new Stage()
  await stage.apply([closed('sealane0')])
  await stage.table.deleteRule(closed('sealane0'))
  await stage.table.addRule(closed('sealane3'))
  const again = await stage.apply([closed('sealane0')])
  t.strictSame([again.done, await again.leave()], [[text('sealane0')], [text('sealane3', 'ip', 'del')]])
  t.strictSame(stage.repairs, ['rule Missing', 'rule Foreign'])
})

t.test('a rule that cannot be added is said, and the rest is added', async (t) => {
  const stage = new Stage()
  stage.table.failNext(new KernelError('EPERM', 'ip rule add', 'operation not permitted'))
  const { complete, done } = await stage.apply([closed('sealane0'), closed('sealane1')])
  t.strictSame([complete, done], [false, [text('sealane1')]])
})
