/**
 * Prepares the server before the ports are opened: the answers that clients will ask for are computed, and the code
 * runs so often that Node compiles it. Otherwise the first clients would wait for both.
 */
import { CLUSTERSET_ZONE } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { OWN_PROCESS } from '../clients/clients.ts'
import { CLASS_IN, TYPE_A } from '../message/message.ts'
import type { Pipeline } from './pipeline.ts'

interface ServiceName {
  readonly namespace: string
  readonly name: string
}

interface WarmUpInit {
  readonly clock: Clock
  /** Keeps its answers where the pipeline of the sockets finds them. Its metrics are not those of the server. */
  readonly pipeline: Pick<Pipeline, 'answer'>
  readonly services: readonly ServiceName[]
  readonly mostMs: number
}

/** Maximum number of questions between other work of the process. */
const AT_ONCE = 100
/** Node has compiled the code by then. A small zone is asked repeatedly. */
const ENOUGH = 10_000
/** No namespace can have this name, because it is not a DNS label. */
const ABSENT: ServiceName = { namespace: '-', name: '-' }

/**
 * Asks for every service once, and repeatedly if there are few. Returns the number of questions. Rejects with the
 * reason of the signal.
 */
export async function warmUp({ clock, pipeline, services, mostMs }: WarmUpInit, signal: AbortSignal): Promise<number> {
  const end = clock.monotonic() + mostMs
  const absent = question(ABSENT)
  const most = Math.max(ENOUGH, services.length)
  let asked = 0
  while (asked < most && clock.monotonic() < end) {
    for (let i = 0; i < AT_ONCE; i += 1) {
      const service = services[asked % services.length]
      if (service !== undefined) void pipeline.answer(question(service), 'udp', OWN_PROCESS)
      void pipeline.answer(absent, 'udp', OWN_PROCESS)
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
