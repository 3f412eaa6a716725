/** The Kubernetes driver on a toy API server. */
import type { Test } from 'tap'
import { type KubeCluster, type KubeClusterInit, openKubeCluster } from '../../../kubeapi/kube/kube-cluster.ts'
import type { Kind, KubeObject } from '../../../model/objects.ts'
import { type Clock, SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import type { FakeApiServer } from '../../support/toy-api-server.ts'

export interface Opened {
  readonly api: KubeCluster
  readonly logger: CapturingLogger
}

export async function openFake(
  t: Test,
  server: FakeApiServer,
  init: Partial<KubeClusterInit> & { readonly clock?: Clock } = {},
): Promise<Opened> {
  const logger = new CapturingLogger()
  const { clock = new SystemClock(), ...rest } = init
  const api = await openKubeCluster(
    { clock, logger },
    { kubeconfig: server.kubeconfig, namespace: 'sealane-system', ...rest },
  )
  t.teardown(() => api.close())
  return { api, logger }
}

/** As a user. */
export function put(server: FakeApiServer, object: KubeObject): void {
  const { kind, metadata } = object
  server.objects.put(server.place(kind, metadata.name, metadata.namespace), { ...object })
}

export function drop(server: FakeApiServer, kind: Kind, name: string, namespace?: string): void {
  const place = server.place(kind, name, namespace)
  if (server.objects.get(place) !== undefined) server.objects.delete(place)
}
