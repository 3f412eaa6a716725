/** Gets ports outside from the router in front of a gateway that cannot be called. */
export { PortMappings, type PortMappingView, endPortMappings, portMappingText } from './port-mappings.ts'
