use super::*;

const STATUS: &str = "\
hub port sta spd dev      sockfd local_busid
hs  0000 006 003 00010002 000003 1-1
hs  0001 004 000 00000000 000000 0-0
hs  0002 004 000 00000000 000000 0-0
ss  0008 004 000 00000000 000000 0-0
";

/// A folder like the controller's, gone with the value.
struct Fake(PathBuf);

impl Fake {
    fn new(name: &str, status: &str) -> Fake {
        let folder =
            std::env::temp_dir().join(format!("netplumb-usb-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in [("status", status), ("attach", ""), ("detach", "")] {
            fs::write(folder.join(file), text).unwrap();
        }
        Fake(folder)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Check that the first free port of high speed is taken.
#[test]
fn finds_a_free_port() {
    assert_eq!(first_free(STATUS).unwrap(), 1);
}

/// Check that a controller whose ports are all in use is reported as full, with the remedy.
#[test]
fn says_that_all_ports_are_in_use() {
    let full = STATUS.replace("hs  0001 004", "hs  0001 006");
    let full = full.replace("hs  0002 004", "hs  0002 007");
    assert_eq!(
        first_free(&full).unwrap_err().to_string(),
        "no free USB port: all 3 of vhci_hcd are in use; detach a device (`usbip detach -p PORT`)"
    );
}

/// Check that a status of another form is refused, and none that is cut short panics.
#[test]
fn refuses_another_status() {
    let error = first_free("heading\nhs\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid line `hs` in the status of vhci_hcd; expected like `hs  0000 004 ...`"
    );
    assert!(first_free("heading\nhs x 004\n").is_err());
    for cut in 0..STATUS.len() {
        let _ = first_free(&STATUS[..cut]);
    }
}

/// Check that a port, a socket, a device's number and its speed are written.
#[test]
fn attaches_to_the_port() {
    let fake = Fake::new("attach", STATUS);
    let attached = Controller::at(&fake.0).attach().unwrap();
    assert_eq!(attached.port, 1);
    let line = fake.read("attach");
    let words: Vec<u32> = line.split(' ').map(|word| word.parse().unwrap()).collect();
    assert_eq!((words[0], words[2], words[3]), (1, 65539, 3));
}

/// Check that a port is detached by its number.
#[test]
fn detaches_the_port() {
    let fake = Fake::new("detach", STATUS);
    Controller::at(&fake.0).detach(5).unwrap();
    assert_eq!(fake.read("detach"), "5");
}

/// Check that a controller that is not there is reported with the module to load.
#[test]
fn names_the_module() {
    let error = Controller::at("/nonexistent/vhci_hcd.0").attach().unwrap_err();
    assert_eq!(
        error.to_string(),
        "no such controller `/nonexistent/vhci_hcd.0`: load the module vhci-hcd (`modprobe vhci-hcd`)"
    );
}
