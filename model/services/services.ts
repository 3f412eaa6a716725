/**
 * The public interface of this room: services that several clusters export (merge, precedence, conflicts), and the
 * endpoints that are one pod.
 */
export { ANNOTATION_PODS, isPodKey, podKey, podsOf, podsText } from './endpoint-pods.ts'
export {
  type ConflictFinding,
  type ExposedPort,
  type IpFamily,
  type MergedService,
  exposedPorts,
  mergeServices,
} from './merge-services.ts'
