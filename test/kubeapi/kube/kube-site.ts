/** The Kubernetes driver on a fake API server. */
import type { Test } from 'tap'
import { type KubeApi, type KubeApiInit, openKubeApi } from '../../../kubeapi/kube/kube-api.ts'
import type { Kind, KubeObject } from '../../../model/objects.ts'
import { type Clock, SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import type { FakeApiServer } from '../../support/fake-api-server.ts'

export interface Opened {
  readonly api: KubeApi
  readonly logger: CapturingLogger
}

export async function openFake(
  t: Test,
  server: FakeApiServer,
  init: Partial<KubeApiInit> & { readonly clock?: Clock } = {},
): Promise<Opened> {
  const logger = new CapturingLogger()
  const { clock = new SystemClock(), ...rest } = init
  const api = await openKubeApi(
    { clock, logger },
    { kubeconfig: server.kubeconfig, namespace: 'sealane-system', ...rest },
  )
  t.teardown(() => api.close())
  return { api, logger }
}

/** Stores the object as a user's client would. */
export function put(server: FakeApiServer, object: KubeObject): void {
  const { kind, metadata } = object
  server.objects.put(server.place(kind, metadata.name, metadata.namespace), { ...object })
}

export function drop(server: FakeApiServer, kind: Kind, name: string, namespace?: string): void {
  const place = server.place(kind, name, namespace)
  if (server.objects.get(place) !== undefined) server.objects.delete(place)
}
