/** The Kubernetes driver passes the suite of all drivers: over HTTP/2, over HTTP/1.1 and without TLS. */
import t from 'tap'
import { clusterApiCompliance } from '../../compliance/cluster-api.ts'
import { fakeApiServer } from '../../support/fake-api-server.ts'
import { drop, openFake, put } from './kube-site.ts'

interface Event {
  readonly type: string
  readonly reason: string
  readonly note: string
}

for (const speak of ['h2', 'http1', 'plain'] as const) {
  t.test(`over ${speak}`, async (t) => {
    clusterApiCompliance(t, async (t) => {
      const server = await fakeApiServer(t, { speak })
      return {
        api: (await openFake(t, server)).api,
        other: (await openFake(t, server)).api,
        put: async (object) => put(server, object),
        drop: async (kind, name, namespace) => drop(server, kind, name, namespace),
        reported: async () => {
          const events = server.objects.list('events.k8s.io/v1/events', 'shop') as unknown as Event[]
          return events.map(({ type, reason, note }) => `${type} ${reason}: ${note}`)
        },
        differences: { namespacesAreMade: true, oneLayer: true },
      }
    })
  })
}
