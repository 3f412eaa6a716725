/** A site whose state folder has the objects of a healthy member, unless a test changes them. */
import type { Test } from 'tap'
import { FileApi } from '../../../kubeapi/files/file-api.ts'
import type { Gateway, KubeObject } from '../../../model/objects.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { type ObjectsByKind, healthyObjects } from '../../support/objects/member-facts.ts'
import { SiteFolder } from '../site-folder.ts'

/** Creates a site whose gateways have current heartbeats. */
export async function siteWith(
  t: Test,
  change: (object: KubeObject) => KubeObject = (one) => one,
  objects: ObjectsByKind = healthyObjects({ kubernetes: false }),
): Promise<SiteFolder> {
  const site = new SiteFolder(t)
  site.remove('objects/nodes.yaml')
  const init = { objects: site.path('objects'), state: site.path('state') }
  const api = new FileApi({ clock: new SystemClock(), logger: new CapturingLogger() }, init)
  const all = Object.entries(objects).filter(([kind]) => kind !== 'Lease')
  for (const item of all.flatMap(([, items]) => items as readonly KubeObject[])) {
    const object = change(item.kind === 'Gateway' ? heardNow(item) : item)
    await api.apply(object)
    if ('status' in object) await api.applyStatus(object)
  }
  await api.close()
  return site
}

function heardNow(gateway: Gateway): Gateway {
  if (gateway.status === undefined) return gateway
  return { ...gateway, status: { ...gateway.status, heartbeatTime: new Date().toISOString() } }
}

/** Returns a Gateway with every link to paris down, and other objects unchanged. */
export function cutOff(object: KubeObject): KubeObject {
  if (object.kind !== 'Gateway' || object.status === undefined) return object
  const connections = object.status.connections.map((one) =>
    one.cluster === 'paris' ? { ...one, state: 'down' as const, message: 'open UDP 4500 at the other gateway' } : one,
  )
  return { ...object, status: { ...object.status, connections } }
}
