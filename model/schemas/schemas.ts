/** The public interface of this room: the shapes of objects, and the fields that are kept. */
export {
  type FieldPath,
  cidr,
  complaintOf,
  dnsLabel,
  dnsSubdomain,
  field,
  integer,
  ipAddress,
  isText,
  list,
  map,
  oneOf,
  pathText,
  text,
  textMap,
  throws,
  timestamp,
} from './fields.ts'
export { SPEC_SHAPES, STATUS_SHAPES } from './own-objects.ts'
export { type RawObject, slimObject } from './slim-objects.ts'
export { userKind } from './user-objects.ts'
