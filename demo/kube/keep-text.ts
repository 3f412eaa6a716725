/** With --keep: what to type to look around, and how to end it. */
import { SEALANE } from '../sites.ts'
import { type World, memberOf } from './member.ts'
import { ZONE } from './shop.ts'

export function keepText(world: World): string {
  const { kubeconfig, directory } = world
  const [node] = memberOf(world, 'c1').cluster.nodes
  return [
    '',
    'The demo keeps running: contexts hub, c1 and c2. To look around, on this machine:',
    `  export KUBECONFIG=${kubeconfig}`,
    `  ${SEALANE} show connections --context hub`,
    `  ${SEALANE} show services --context c1`,
    `  ${SEALANE} cluster list --context hub`,
    `  kubectl --context c1 -n shop get serviceimports`,
    `  kubectl --context c1 -n shop exec request -- curl -s http://web-hub.${ZONE}/`,
    `  kubectl --context c2 -n sealane-system logs daemonset/sealane-gateway`,
    `  ip netns exec ${node?.netns ?? ''} nft list ruleset          # the kernel of node ${node?.name ?? ''}`,
    `  ls ${directory}                          # logs of every program`,
    'To end it: npm run demo:kube -- --sweep',
    '',
  ].join('\n')
}
