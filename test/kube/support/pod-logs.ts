/** What the pods of a cluster have said. */
import type { KubeObject, KubeRequest } from './kube-request.ts'

interface Pod extends KubeObject {
  readonly spec: { readonly containers: readonly { readonly name: string }[] }
}

/** Lines of all containers of a namespace that look as if the API server had refused something, each with its pod. */
export async function refusedByApiServer(api: KubeRequest, namespace: string): Promise<readonly string[]> {
  const found: string[] = []
  for (const { metadata, spec } of await api.list<Pod>(`/api/v1/namespaces/${namespace}/pods`)) {
    for (const { name } of spec.containers) {
      const path = `/api/v1/namespaces/${namespace}/pods/${metadata.name}/log?container=${name}`
      const { status, text } = await api.raw('GET', path)
      if (status !== 200) found.push(`${metadata.name}: no log: ${status} ${text.slice(0, 200)}`)
      const lines = text.split('\n').filter((line) => /forbidden|\b403\b|denied/i.test(line))
      found.push(...lines.map((line) => `${metadata.name}: ${line}`))
    }
  }
  return found
}
