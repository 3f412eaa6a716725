/**
 * A process of ours with its status page, as it runs in a pod. Arguments: where the page listens, and either the folder
 * of a broker's state or the objects of a member as JSON. Prints `ready` when it serves.
 */
import { serveBrokerProcess } from '../../../compose/broker/serve.ts'
import { laneCallers } from '../../../compose/site/run-site.ts'
import { withProcess } from '../../../compose/process.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import type { Cluster } from '../../../model/objects.ts'
import { untilAborted } from '../../../reconcile/wait.ts'

const [listen = '', what = '', given = ''] = process.argv.slice(2)
const stop = new AbortController()
process.once('SIGTERM', () => stop.abort())
const init = { statusListen: [listen], logLevel: 'info' } as const

if (what === 'broker') {
  const at = '127.0.0.1:7443'
  await serveBrokerProcess({ ...init, state: given, listen: at, advertise: [at], clusterset: 'demo' }, stop.signal)
} else {
  const clusters = JSON.parse(given) as Cluster[]
  await withProcess({ ...init, name: 'dns' }, async ({ status }, started) => {
    const api = new MemoryApi()
    for (const cluster of clusters) api.put(cluster)
    status.turnAway(laneCallers(api, clusters[0]?.metadata.name ?? ''))
    started()
    await untilAborted(stop.signal)
  })
}
