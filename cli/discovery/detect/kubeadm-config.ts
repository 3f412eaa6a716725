/** The settings with which kubeadm made the cluster (kind and others use it too). */
import { type Evidence, networks } from '../evidence.ts'
import { prefixesIn } from '../snapshot/prefix-texts.ts'
import { documentIn, textAt } from '../snapshot/raw.ts'
import { type World, configText } from '../snapshot/snapshot.ts'

export function kubeadmConfig(world: World): Evidence[] {
  const found = configText(world, ['kube-system/kubeadm-config'], ['ClusterConfiguration'])
  if (found === undefined) return []
  const networking = (field: string): string | undefined => textAt(documentIn(found.text), 'networking', field)
  const how = (field: string): string => `${found.where} networking.${field}`
  const domain = networking('dnsDomain')
  return [
    ...networks('podCIDRs', prefixesIn([networking('podSubnet')]), 'likely', how('podSubnet')),
    ...networks('serviceCIDRs', prefixesIn([networking('serviceSubnet')]), 'likely', how('serviceSubnet')),
    ...(domain === undefined
      ? []
      : [{ about: 'dnsDomain', value: domain, confidence: 'likely', how: how('dnsDomain') } as const]),
  ]
}
