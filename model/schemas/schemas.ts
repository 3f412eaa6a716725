/** The public interface of this room: the shapes of objects, and the fields that are kept. */
export {
  type FieldPath,
  cidr,
  complaintOf,
  dnsLabel,
  dnsSubdomain,
  field,
  ipAddress,
  isText,
  oneOf,
  pathText,
  text,
  textMap,
  timestamp,
} from './fields.ts'
export { integer, list, map, throws } from '../kinds/kinds.ts'
export { SPEC_SHAPES, STATUS_SHAPES } from './own-objects.ts'
export { type RawObject, slimObject } from './slim-objects.ts'
export { userKind } from './user-objects.ts'
