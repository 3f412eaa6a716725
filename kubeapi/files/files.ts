/** The public interface of this room, the driver on files: a site without Kubernetes. */
export { FileApi } from './file-api.ts'
export { type NodeFile, formatNodeFile, parseNodeFile, readNodeFile } from './node-file.ts'
export {
  DEFAULT_CLUSTERSET_RANGES,
  type FileText,
  type ReservedRange,
  type SiteCheck,
  type SiteTexts,
  planSiteCheck,
} from './plan-site-check.ts'
export { type FileProblem, InvalidFileError, formatProblem } from './problem-board.ts'
export { checkSite, readSiteTexts } from './read-site-texts.ts'
export { RemovalMarks } from './removal-marks.ts'
export { type RunningSite, keepSiteText, planRunningSite, readRunningSite, warnOfSite } from './running-site.ts'
export { type KubernetesAccess, type SiteConfig, parseSiteFile, readSiteFile } from './site-file.ts'
export { changeSiteExposure } from './user/edit-site-file.ts'
export { type MetadataChange, changeUserMetadata } from './user/edit-user-object.ts'
export { UserObjectError, removeUserObject, writeUserObject } from './user/user-objects.ts'
