/** Of the clusters that could join: those that this kubeconfig has beside the broker's own. */
import type { KubeTarget } from './target.ts'

export async function otherContexts(broker: KubeTarget): Promise<readonly string[]> {
  const { contextNames } = await import('../kubeapi/kube/access/kubeconfig.ts')
  const { names, current } = contextNames(broker)
  return names.filter((name) => name !== (broker.context ?? current))
}
