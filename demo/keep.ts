/** With --keep: what to type to look around, and how to end it. */
import { join } from 'node:path'
import type { Lab } from './lab.ts'
import { SEALANE } from './sites.ts'

export function keepText(lab: Lab): string {
  const inTokyo = `ip netns exec ${lab.full('tokyo-client-1')}`
  const site = join(lab.directory, 'tokyo', 'site.yaml')
  return [
    '',
    'The demo keeps running. To look around:',
    `  ${inTokyo} curl http://web.shop.svc.clusterset.local/`,
    `  ${inTokyo} dig SRV _pg._tcp.db.shop.svc.clusterset.local`,
    `  ${SEALANE} show connections --site ${site}`,
    `  ${SEALANE} show services --site ${site}`,
    `  ip netns exec ${lab.full('tokyo-gw')} nft list ruleset`,
    `  ip netns exec ${lab.full('internet')} nft list counters`,
    `  tail ${join(lab.directory, '*.log')}`,
    'To end it: npm run demo -- --sweep',
    '',
  ].join('\n')
}
