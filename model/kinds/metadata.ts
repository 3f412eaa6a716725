/** The description of what every object has beside its own fields: metav1.ObjectMeta, as far as Sealane reads it. */
import { type Described, anyInteger, dnsLabel, list, map, objectName, text, textMap, timestamp } from './fields.ts'

/** The owner of an object. Kubernetes removes objects whose owner is gone. */
const OWNER = map({ apiVersion: text(), kind: text(), name: text(), uid: text() })
export type OwnerReference = Described<typeof OWNER>

/** The grammar of the name is that of most kinds; users' objects have the one of their kind. */
export const METADATA = map({
  name: objectName(''),
  namespace: dnsLabel().optional(),
  uid: text().optional(),
  resourceVersion: text().optional(),
  generation: anyInteger('int64', '', 0).optional(),
  /** RFC 3339. */
  creationTimestamp: timestamp().optional(),
  deletionTimestamp: timestamp().optional(),
  labels: textMap().optional(),
  annotations: textMap().optional(),
  /** Only the kinds in OWNED_BY_NODES, and Services, are read with it. */
  ownerReferences: list(OWNER).optional(),
})
export type ObjectMeta = Described<typeof METADATA>
