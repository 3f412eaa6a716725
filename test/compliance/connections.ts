/**
 * The suite for every ConnectionTable. The stage opens connections between 10.42.1.5 and other addresses, and returns
 * only once the table has them.
 */
import type { Test } from 'tap'
import type {
  AnswerEnds,
  CallLookup,
  ConnectionTable,
  FlowTable,
  TranslatedFlow,
} from '../../kernel/nfnetlink/connection-table.ts'
import { formatAddress, parsePrefix } from '../../model/values/ip.ts'
import { eventually } from '../support/eventually.ts'

export interface ConnectionStage {
  readonly table: ConnectionTable
  /**
   * Opens a connection to the address `to`. With `answeredBy`, address translation makes that address answer. Returns
   * the function that closes the connection.
   */
  open(protocol: 'tcp' | 'udp', to: string, answeredBy?: string): Promise<() => void>
  /** Opens connections that do not count: UDP with too few packets for a conversation, and TCP without an answer. */
  disturb?(): Promise<void>
}

const PLENTY = 1000

export async function listed(table: ConnectionTable, limit = PLENTY): Promise<readonly string[]> {
  const found: string[] = []
  const address = (value: number): string => formatAddress({ family: 4, value: BigInt(value) })
  await table.scan(limit, ({ client, server }) => found.push(`${address(client)} ${address(server)}`))
  return found.sort()
}

/** `make` returns a stage without open connections, and removes it after the test. */
export function connectionsCompliance(t: Test, make: (t: Test) => Promise<ConnectionStage>): void {
  const shows = (stage: ConnectionStage, ...want: string[]): Promise<unknown> =>
    eventually(async () => (await listed(stage.table)).join() === want.join(), { say: want.join() || 'nothing' })

  t.test('what is open, and only while it is', async (t) => {
    const stage = await make(t)
    t.strictSame(await listed(stage.table), [])
    t.strictSame(await stage.table.scan(PLENTY, () => undefined), { whole: true }, 'an empty list is whole')
    await stage.disturb?.()
    const close = await stage.open('tcp', '10.60.0.5')
    await shows(stage, '10.42.1.5 10.60.0.5')
    await stage.open('udp', '10.60.0.6')
    await shows(stage, '10.42.1.5 10.60.0.5', '10.42.1.5 10.60.0.6')
    await stage.open('tcp', '245.0.0.7', '10.60.0.7')
    await shows(stage, '10.42.1.5 10.60.0.5', '10.42.1.5 10.60.0.6', '10.42.1.5 10.60.0.7')
    close()
    await shows(stage, '10.42.1.5 10.60.0.6', '10.42.1.5 10.60.0.7')
  })

  t.test('no more than asked for', async (t) => {
    const stage = await make(t)
    for (let i = 0; i < 3; i += 1) await stage.open('tcp', '10.60.0.5')
    await shows(stage, ...Array<string>(3).fill('10.42.1.5 10.60.0.5'))
    for (const [limit, found, whole] of [
      [0, 0, false],
      [2, 2, false],
      [3, 3, true],
      [4, 3, true],
    ] as const) {
      let count = 0
      const scan = await stage.table.scan(limit, () => (count += 1))
      t.strictSame({ count, ...scan }, { count: found, whole }, `${limit} at most`)
    }
  })

  t.test('several at once, and one that is stopped', async (t) => {
    const stage = await make(t)
    await stage.open('tcp', '10.60.0.5')
    await shows(stage, '10.42.1.5 10.60.0.5')
    const all = await Promise.all(Array.from({ length: 5 }, () => listed(stage.table)))
    t.strictSame(all, Array(5).fill(['10.42.1.5 10.60.0.5']))
    await t.rejects(
      stage.table.scan(PLENTY, () => undefined, AbortSignal.abort()),
      { code: 'EINTR' },
    )
  })
}

export interface FlowStage {
  readonly table: FlowTable & CallLookup
  /**
   * Begins a UDP flow from the client's address to a clusterset IP, and returns once the table has it. Addresses and
   * ports are as in `10.42.1.5:7000` and `[fd42::5]:7000`. `server` answers; it is `called` for a flow that is not
   * translated.
   */
  begin(client: string, called: string, server: string): Promise<void>
}

const RANGES = { 4: parsePrefix('245.0.0.0/16'), 6: parsePrefix('fd53:ea1a:4e00::/96') }

export async function flowsOf(table: FlowTable, family: 4 | 6, limit = PLENTY): Promise<TranslatedFlow[]> {
  const found: TranslatedFlow[] = []
  await table.flows(RANGES[family], limit, (flow) => found.push(flow))
  return found
}

export function flowText({ client, called, server }: TranslatedFlow): string {
  const [from, to, by] = [client, called, server].map(({ address, port }) =>
    address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`,
  )
  return `${from} ${to} ${by}`
}

/** `make` returns a stage without flows, and removes it after the test. */
export function flowsCompliance(t: Test, make: (t: Test) => Promise<FlowStage>): void {
  const texts = async (stage: FlowStage, family: 4 | 6): Promise<string[]> =>
    (await flowsOf(stage.table, family)).map(flowText).sort()

  t.test('UDP flows to clusterset IPs are listed, and those that are forgotten begin again', async (t) => {
    const stage = await make(t)
    t.strictSame([await texts(stage, 4), await texts(stage, 6)], [[], []])
    await stage.begin('10.42.1.5:7001', '245.0.0.7:53', '10.60.0.5:5353')
    await stage.begin('10.42.1.5:7002', '245.0.0.7:53', '10.60.0.5:5353')
    await stage.begin('10.42.1.5:7003', '245.0.0.8:53', '10.60.0.6:5353')
    await stage.begin('10.42.1.5:7004', '10.60.0.6:5353', '10.60.0.6:5353')
    await stage.begin('[fd42::5]:7005', '[fd53:ea1a:4e00::f500:7]:53', '[fd60::5]:5353')
    const first = '10.42.1.5:7001 245.0.0.7:53 10.60.0.5:5353'
    const second = '10.42.1.5:7002 245.0.0.7:53 10.60.0.5:5353'
    const third = '10.42.1.5:7003 245.0.0.8:53 10.60.0.6:5353'
    const six = '[fd42::5]:7005 [fd53:ea1a:4e00::f500:7]:53 [fd60::5]:5353'
    t.strictSame(await texts(stage, 4), [first, second, third], 'and no flow to another address')
    t.strictSame(await texts(stage, 6), [six])

    const flows = await flowsOf(stage.table, 4)
    const some = flows.filter((flow) => flowText(flow) !== second)
    const answersOf = ({ client, server }: TranslatedFlow): AnswerEnds => ({ protocol: 'UDP', client, server })
    const asked = [...flows, ...(await flowsOf(stage.table, 6))].map(answersOf)
    t.strictSame(await stage.table.states(asked), Array(4).fill('unanswered'))
    t.strictSame(await stage.table.states([]), [])
    t.strictSame(
      await stage.table.states(asked.map((ends) => ({ ...ends, protocol: 'TCP' }))),
      Array(4).fill(undefined),
    )
    t.equal(await stage.table.forget(some), 2)
    t.strictSame(
      await stage.table.states(flows.map(answersOf)),
      flows.map((flow) => (flowText(flow) === second ? 'unanswered' : undefined)),
    )
    t.strictSame(await texts(stage, 4), [second], 'others stay')
    t.equal(await stage.table.forget(some), 0, 'what has ended already is no failure')
    t.equal(await stage.table.forget([]), 0)

    await stage.begin('10.42.1.5:7001', '245.0.0.7:53', '10.60.0.6:5353')
    t.strictSame(await texts(stage, 4), ['10.42.1.5:7001 245.0.0.7:53 10.60.0.6:5353', second], 'it begins again')
    t.equal(await stage.table.forget(await flowsOf(stage.table, 6)), 1)
    t.strictSame(await texts(stage, 6), [])
    await t.rejects(stage.table.forget(some, AbortSignal.abort()), { code: 'EINTR' })
    await t.rejects(
      stage.table.flows(RANGES[4], PLENTY, () => undefined, AbortSignal.abort()),
      { code: 'EINTR' },
    )
  })

  t.test('more flows than one message to the kernel takes, and a limit', async (t) => {
    const stage = await make(t)
    for (let i = 0; i < 250; i += 1) await stage.begin(`10.42.1.5:${8000 + i}`, '245.0.0.7:53', '10.60.0.5:5353')
    const flows = await flowsOf(stage.table, 4)
    t.equal(flows.length, 250)
    const asked = flows.map(({ client, server }): AnswerEnds => ({ protocol: 'UDP', client, server }))
    t.strictSame(await stage.table.states(asked), Array(250).fill('unanswered'))
    t.ok((await flowsOf(stage.table, 4, 100)).length <= 100)
    t.strictSame(await stage.table.flows(RANGES[4], 100, () => undefined), { whole: false })
    t.equal(await stage.table.forget(flows), 250)
    t.strictSame(await texts(stage, 4), [])
  })
}
