/**
 * Before the ports are opened: the answers that clients will ask for are made, and the way to them is walked so often
 * that Node has compiled it. Else the clients of the first seconds wait for both.
 */
import type { Clock } from '../reconcile/clock.ts'
import { CLUSTERSET_ZONE } from '../model/spec-constants.ts'
import type { Pipeline } from './pipeline.ts'
import { CLASS_IN, TYPE_A } from './wire.ts'

interface ServiceName {
  readonly namespace: string
  readonly name: string
}

export interface WarmUpInit {
  readonly clock: Clock
  readonly pipeline: Pick<Pipeline, 'rehearse'>
  readonly services: readonly ServiceName[]
  readonly mostMs: number
}

/** Other work of the process waits for so many questions at most. */
const AT_ONCE = 100
/** By then Node has compiled the way. A small zone is asked again and again. */
const ENOUGH = 10_000
/** No namespace is called so: it would be no DNS label. */
const ABSENT: ServiceName = { namespace: '-', name: '-' }

/**
 * Asks for every service once, and more often where they are few. Gives the number of questions. Rejects with the
 * signal's reason.
 */
export async function warmUp({ clock, pipeline, services, mostMs }: WarmUpInit, signal: AbortSignal): Promise<number> {
  const end = clock.monotonic() + mostMs
  const absent = question(ABSENT)
  const most = Math.max(ENOUGH, services.length)
  let asked = 0
  while (asked < most && clock.monotonic() < end) {
    for (let i = 0; i < AT_ONCE; i += 1) {
      const service = services[asked % services.length]
      if (service !== undefined) pipeline.rehearse(question(service))
      pipeline.rehearse(absent)
      asked += 1
    }
    await new Promise((resolve) => setImmediate(resolve))
    signal.throwIfAborted()
  }
  return asked
}

/** The header asks for recursion, as the resolvers of pods do. */
const HEADER = Buffer.from([0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0])
const TAIL = Buffer.from([0, 0, TYPE_A, 0, CLASS_IN])

function question({ namespace, name }: ServiceName): Buffer {
  const labels = [name, namespace, 'svc', ...CLUSTERSET_ZONE.split('.')]
  const octets = labels.flatMap((label) => [Buffer.from([label.length]), Buffer.from(label, 'latin1')])
  return Buffer.concat([HEADER, ...octets, TAIL])
}
