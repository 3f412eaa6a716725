/**
 * The suite for every ConnectionTable. The stage opens connections between 10.42.1.5 and other addresses, and returns
 * only once the table has them.
 */
import type { Test } from 'tap'
import type { ConnectionTable } from '../../kernel/conntrack/connection-table.ts'
import { formatAddress } from '../../model/values/ip.ts'
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
