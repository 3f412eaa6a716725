/** The functions that the stories share: names in the zone, and waiting for a value. */
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import { type Call, type Site, callers } from '../support/callers.ts'
import type { Json } from '../support/kube-request.ts'

const ZONE = 'clusterset.local'
const SOON = { deadlineMs: 20_000, intervalMs: 50 }

/** The name of a service of the shop. */
export function inZone(name: string): string {
  return `${name}.shop.svc.${ZONE}`
}

export function namespace(name: string): Json {
  return { apiVersion: 'v1', kind: 'Namespace', metadata: { name } }
}

/** Waits for the value; the test's output shows the last one. */
export async function same<T>(t: Test, read: () => Promise<T>, wanted: T, says: string): Promise<void> {
  let last: T | undefined
  await eventually(async () => (last = await read()) === wanted, SOON).catch(() => undefined)
  t.equal(last, wanted, says)
}

export interface Expected {
  readonly name: string
  readonly port: number
  readonly protocol: Call['protocol']
  readonly wanted: string
  readonly says: string
}

/** The probability that this many calls all miss one of three backends is one in twelve thousand million. */
const CALLS = 60

/**
 * Makes many calls, and checks which backends answered. If an answer is expected, it first waits for one: an import
 * exists a moment before the nodes balance it.
 */
export async function expectCallers(
  t: Test,
  site: Site,
  { name, port, protocol = 'tcp', wanted, says }: Expected,
): Promise<void> {
  const call = { namespace: 'shop', host: inZone(name), port, protocol }
  const first = async (): Promise<boolean> => (await callers(site, { ...call, times: 1 })) !== 'nobody'
  if (wanted !== 'nobody') await eventually(first, SOON).catch(() => undefined)
  const answered = await callers(site, { ...call, times: CALLS })
  t.equal(answered, wanted, `${says}: ${name} ${port}/${protocol} from ${site.name}`)
}
