/** Every attack and every fault that the tests try, by topic. */
import { ACCESS } from './access.ts'
import { ADMIN } from './admin.ts'
import { AUTHORITY } from './authority.ts'
import { BROKER } from './broker.ts'
import { CLUSTERSETS } from './clustersets.ts'
import { DATA_PLANE } from './data-plane.ts'
import { FAULTS } from './faults.ts'
import { IDENTITY } from './identity.ts'
import { NAMES } from './names.ts'
import { RANGES } from './ranges.ts'
import { RECORDS } from './records.ts'
import type { AttackRow } from './row.ts'
import { SITE_HUB } from './site-hub.ts'
import { STRANGERS } from './strangers.ts'
import { TOKENS } from './tokens.ts'

export interface AttackTable {
  readonly title: string
  readonly rows: readonly AttackRow[]
}

export const ATTACKS: readonly AttackTable[] = [
  { title: 'Addresses that a member states', rows: RANGES },
  { title: 'Packets from lanes and pods', rows: DATA_PLANE },
  { title: 'Past the access rules of a member', rows: ACCESS },
  { title: 'Keys, certificates and ids', rows: IDENTITY },
  { title: 'The certificate authority', rows: AUTHORITY },
  { title: 'Another clusterset at the same broker', rows: CLUSTERSETS },
  { title: 'Records that a member publishes', rows: RECORDS },
  { title: 'A compromised broker', rows: BROKER },
  { title: 'Stolen tokens of parts', rows: TOKENS },
  { title: 'A stranger against the broker', rows: STRANGERS },
  { title: 'The admin service of the broker', rows: ADMIN },
  { title: 'The hub of a plain site', rows: SITE_HUB },
  { title: 'Questions to the DNS server', rows: NAMES },
  { title: 'Faults', rows: FAULTS },
]
